"""Reading an unpacked engine wheel as text: its config classes, flags and variables, by ``ast`` alone."""
