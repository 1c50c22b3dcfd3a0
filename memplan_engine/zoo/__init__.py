"""A zoo: many models, each in many variants, planned into a store of history, by the cores of one machine or
by the workers of a cluster."""
