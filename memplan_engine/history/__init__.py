"""The memory of a project over its commits: what is planned for each, kept so that any two can be compared.

Nothing here needs a database; `database` does, and is imported when a store is opened.
"""
