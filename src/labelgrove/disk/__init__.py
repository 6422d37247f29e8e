"""What models and runs stand on: files that are whole or absent, checked, hashed and locked."""
