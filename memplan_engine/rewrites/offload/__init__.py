"""Storages that wait on the host while nothing reads them: copied there, and back."""
