"""Records turned into text and JSON, at the edge. Words are made here and nowhere else."""
