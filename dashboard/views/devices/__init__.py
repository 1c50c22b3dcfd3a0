"""The page Devices."""
