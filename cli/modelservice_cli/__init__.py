"""The command line. Owns arguments and what is printed; what a command does is in the package it calls."""
