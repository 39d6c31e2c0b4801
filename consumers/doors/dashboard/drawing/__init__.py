"""Drawings of graphs as data: boxes with their places and lines with their points, which a template shows as SVG."""
