"""Reports as rows, as Markdown and as compressed JSON; how well agents judge themselves."""
