"""The walk of a newcomer: nine clients' configs, thirty real servers, every step from `import` to `uninstall`."""
