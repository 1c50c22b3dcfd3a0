"""The store itself, in SQLite or PostgreSQL: all that needs SQLAlchemy and Alembic when it is imported."""
