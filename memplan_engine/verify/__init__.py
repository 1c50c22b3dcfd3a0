"""The checkers: plans, certificates, cores. They share no code with what they check."""
