"""What a view is, the table of all views, and the runner that folds events into them."""
