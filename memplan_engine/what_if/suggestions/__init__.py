"""The smallest change that makes a problem fit."""
