"""A recorded run, trained again and compared."""
