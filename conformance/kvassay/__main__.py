"""``python -m kvassay``."""

from .cli import main

if __name__ == "__main__":
    main()
