"""Reports as rows, as Markdown and as compressed JSON, and the calibration of agents."""
