"""The workflows of orders."""
