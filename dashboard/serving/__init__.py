"""The dashboard's server: Streamlit behind a door that knows who may come in."""
