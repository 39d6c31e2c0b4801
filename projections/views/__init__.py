"""The form of a view, the table of all views, and the runner that folds events into them."""
