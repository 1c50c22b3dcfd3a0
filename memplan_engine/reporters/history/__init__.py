"""A history for people and for machines: tables, sentences, the formats of other tools."""
