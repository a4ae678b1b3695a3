"""Services of addresses: settings in force, and the trigger of cycles."""
