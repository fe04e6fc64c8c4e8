"""pytest plug-ins of this workspace; the root conftest.py loads them for every wheel and for integration/."""
