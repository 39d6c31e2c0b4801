"""What is known here and where it came from, over all other views: this package has queries and no fold."""
