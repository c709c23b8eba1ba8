// Confines itself by the filter behind the code, tries it, and becomes the program that its arguments name.
    mov x8, #167            // prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    mov x0, #38
    mov x1, #1
    mov x2, #0
    mov x3, #0
    mov x4, #0
    svc #0
    cbnz x0, fail
    mov x8, #167            // prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter)
    mov x0, #22
    mov x1, #2
    adr x2, filter
    svc #0
    cbnz x0, fail
    mov x8, #198            // socket(AF_VSOCK, SOCK_STREAM | 1 << 28, 0)
    mov x0, #40
    mov x1, #1
    movk x1, #0x1000, lsl #16
    mov x2, #0
    svc #0
    cmn x0, #97             // EAFNOSUPPORT
    b.ne fail
    ldr x2, [sp]            // argc; behind it argv, and behind that the environment
    add x1, sp, #16
    ldr x0, [x1]
    add x2, x1, x2, lsl #3
    mov x8, #221            // execve(argv[1], argv + 1, envp)
    svc #0
fail:
    mov x0, #124
    mov x8, #94             // exit_group(124)
    svc #0
.balign 8
filter:
