// Empty: it tells the compiler that manager.go's function has its body elsewhere.
