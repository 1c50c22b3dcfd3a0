"""Parts of pages: finished values in, widgets out."""
