/* A few threads that share out numbered pieces of work. Which thread does which piece decides nothing. */

#ifndef ANCHORLEG_TEAM_H
#define ANCHORLEG_TEAM_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* Waiting begins with looking this often, because a condition variable takes longer to wake a thread than the steps
   of a few environments differ. */
#define LOOKS 20000

struct team {
    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    pthread_t *threads;
    int helpers;
    atomic_int turn, busy, next;
    bool over;
    int count;
    void (*work)(void *context, int piece);
    void *context;
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static void do_pieces(struct team *team) {
    for (int piece; (piece = atomic_fetch_add(&team->next, 1)) < team->count;)
        team->work(team->context, piece);
}

static void *help(void *argument) {
    struct team *team = argument;
    for (int seen = 0;;) {
        for (int i = 0; i < LOOKS && atomic_load(&team->turn) == seen; i++)
            relax();
        pthread_mutex_lock(&team->lock);
        while (atomic_load(&team->turn) == seen)
            pthread_cond_wait(&team->begun, &team->lock);
        seen = atomic_load(&team->turn);
        bool over = team->over;
        pthread_mutex_unlock(&team->lock);
        if (over)
            return NULL;
        do_pieces(team);
        pthread_mutex_lock(&team->lock);
        if (atomic_fetch_sub(&team->busy, 1) == 1)
            pthread_cond_signal(&team->ended);
        pthread_mutex_unlock(&team->lock);
    }
}

static void begin_turn(struct team *team) {
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->next, 0);
    atomic_store(&team->busy, team->helpers);
    atomic_fetch_add(&team->turn, 1);
    pthread_cond_broadcast(&team->begun);
    pthread_mutex_unlock(&team->lock);
}

/* Do pieces 0 … count - 1; returns when all are done. The caller works too. */
static void team_do(struct team *team, int count, void (*work)(void *, int), void *context) {
    team->count = count;
    team->work = work;
    team->context = context;
    begin_turn(team);
    do_pieces(team);
    for (int i = 0; i < LOOKS && atomic_load(&team->busy); i++)
        relax();
    pthread_mutex_lock(&team->lock);
    while (atomic_load(&team->busy))
        pthread_cond_wait(&team->ended, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

static void team_close(struct team *team) {
    team->over = true;
    begin_turn(team);
    for (int i = 0; i < team->helpers; i++)
        pthread_join(team->threads[i], NULL);
    pthread_cond_destroy(&team->begun);
    pthread_cond_destroy(&team->ended);
    pthread_mutex_destroy(&team->lock);
    free(team->threads);
    free(team);
}

/* The caller and `helpers` more threads, or as many as the system gives; NULL for none. They get no signals, which are
   for Python's main thread, but those of their own crashes: blocked, these end the process before it tells where. */
static struct team *team_open(int helpers) {
    struct team *team = calloc(1, sizeof *team);
    sigset_t every, before;
    if (!team)
        return NULL;
    team->threads = calloc((size_t)helpers + 1, sizeof *team->threads);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->begun, NULL);
    pthread_cond_init(&team->ended, NULL);
    sigfillset(&every);
    sigdelset(&every, SIGSEGV);
    sigdelset(&every, SIGBUS);
    sigdelset(&every, SIGFPE);
    sigdelset(&every, SIGILL);
    pthread_sigmask(SIG_BLOCK, &every, &before);
    while (team->threads && team->helpers < helpers &&
           !pthread_create(&team->threads[team->helpers], NULL, help, team))
        team->helpers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (team->helpers)
        return team;
    team_close(team);
    return NULL;
}

#endif
