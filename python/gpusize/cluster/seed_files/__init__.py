"""The files of the Run:ai scale test tool: read as tables, and written from them."""
