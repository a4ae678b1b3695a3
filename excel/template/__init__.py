"""What a table is drawn from: templates, as models, and what is wrong with them."""
