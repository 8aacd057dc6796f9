"""Reports of engines as pages, and the table of judged engines in the README."""
