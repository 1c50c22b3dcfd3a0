"""Local search: contact fit, skylines, repair by ejection."""
