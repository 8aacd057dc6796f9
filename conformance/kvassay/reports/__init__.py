"""What a run leaves behind: terminal lines, JSON, JUnit and one self-contained HTML page."""
