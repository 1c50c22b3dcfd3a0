"""The steps of the GitHub Action in `action.yml`: what its shell runs, and nothing that shell has to know."""
