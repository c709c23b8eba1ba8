# Confines itself by the filter behind the code, tries it, and becomes the program that its arguments name.
.intel_syntax noprefix
    mov eax, 157            # prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    mov edi, 38
    mov esi, 1
    xor edx, edx
    xor r10d, r10d
    xor r8d, r8d
    syscall
    test eax, eax
    jnz fail
    mov eax, 157            # prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter)
    mov edi, 22
    mov esi, 2
    lea rdx, [rip + filter]
    syscall
    test eax, eax
    jnz fail
    mov eax, 41             # socket(AF_VSOCK, SOCK_STREAM | 1 << 28, 0)
    mov edi, 40
    mov esi, 0x10000001
    xor edx, edx
    syscall
    cmp eax, -97            # EAFNOSUPPORT
    jne fail
    mov rcx, [rsp]          # argc; behind it argv, and behind that the environment
    lea rsi, [rsp + 16]
    mov rdi, [rsi]
    lea rdx, [rsi + rcx * 8]
    mov eax, 59             # execve(argv[1], argv + 1, envp)
    syscall
fail:
    mov edi, 124
    mov eax, 231            # exit_group(124)
    syscall
.balign 8
filter:
