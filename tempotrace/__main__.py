"""`python -m tempotrace` is the console script `tempotrace`."""

from tempotrace.cli import main

main()
