"""Options as data: one engine with GNU getopt_long's rules, one table per command."""
