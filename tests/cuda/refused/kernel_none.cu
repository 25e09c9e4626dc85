inline int answer() { return 42; }
