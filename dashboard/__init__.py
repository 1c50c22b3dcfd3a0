"""The dashboard: a Streamlit app that draws what the engine has planned."""
