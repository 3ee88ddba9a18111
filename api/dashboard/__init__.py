"""What the pages for people share: templates, static files, formats of numbers, error pages."""
