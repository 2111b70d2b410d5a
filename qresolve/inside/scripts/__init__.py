"""Scripts that run in an interpreter where an engine is installed; they import nothing of qresolve."""
