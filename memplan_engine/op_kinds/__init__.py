"""What is known of op kinds by their names alone."""
