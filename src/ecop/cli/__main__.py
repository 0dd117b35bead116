"""`python -m ecop.cli`."""

from ecop.cli import main

if __name__ == "__main__":
    main()
