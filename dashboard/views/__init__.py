"""The pages: widgets and layout, no arithmetic."""
