"""Records of other tools as rows: what was imported, what it stands for, and what was only kept aside."""
