/*
 * loop.pml - a model of the hand-over in src/loop.c, step by step where threads can meet.
 *
 * Callers post a command each, then wait for it, or with a time-out first, or test, or leave. A command starts an operation
 * that a packet ends (NETWORK), is done at once (AT_ONCE), or is completed by a deferred command (DEFERRED, as destroy is).
 * Beside them run the background thread and the network.
 *
 * Left out: whatever the time-outs of sleeps repair. No sleep ends by its time-out here (only waits that have one of their own
 * may), so what a sleep of a second would hide shows as a deadlock. What the code does rely on is in the model: without a
 * driver, the background thread takes the slot, sooner or later.
 *
 * Checked: no deadlock (each caller returns; only the background thread may stay asleep), at most one driver, every pass under
 * the lock, no waiter asleep without a driver; at rest, every command has run and every operation has completed; and `served`:
 * it comes to rest.
 *
 * The lines below are read by tests/lint/test_model.sh. A variant is a set of definitions for which all this must hold, `live`: with
 * `served`. A mutant is a mutation of the code, with a variant that shows it, which must be found out.
 *
 * variant: CALLERS=1
 * variant: CALLERS=2 NO_THREAD
 * variant: CALLERS=2 THREAD_ONLY BLOCKING=1
 * variant: CALLERS=2 BLOCKING=1
 * live: CALLERS=1
 * live: CALLERS=2 NO_THREAD
 * live: CALLERS=2 BLOCKING=2 ALL_DEFERRED
 *
 * mutant: CALLERS=1 NO_LOOK_BEFORE_SLEEP             the driver goes to sleep without another look at what was posted
 * mutant: CALLERS=1 LOOK_TOO_EARLY                   it looks, but before it says that it sleeps (as in another memory order)
 * mutant: CALLERS=2 THREAD_ONLY LOOK_TOO_LATE        it looks after it gave the lock up, when a visitor may have taken it
 * mutant: CALLERS=1 NO_WAKE_BY_POST                  who posts and finds the lock taken does not wake the driver
 * mutant: CALLERS=1 NO_WAKE_BY_VISIT                 a visitor does not wake the driver for what it left undone
 * mutant: CALLERS=2 THREAD_ONLY NO_WAKE_BY_WAIT      a waiter does not wake the driver for what its post left undone
 * mutant: CALLERS=2 BLOCKING=1 NO_RECALL            the background thread stays asleep when it gets the slot back
 * mutant: CALLERS=2 NO_THREAD NO_PROMOTION           a leaving driver frees the slot though others wait
 * mutant: CALLERS=2 NO_THREAD TOKEN_LOST             a waiter promoted when its time is over does not pass the slot on
 * mutant: CALLERS=2 BLOCKING=2 ALL_DEFERRED NO_LOOK_AT_DONE  the driver does not look whether a deferred command completed its request
 * mutant: CALLERS=2 BLOCKING=1 NO_WAKE_BY_COMPLETION  nor is it woken by that
 * mutant: CALLERS=1 DRIVE_UNLOCKED                   a caller drives without the lock
 * live-mutant: CALLERS=2 BLOCKING=2 ALL_DEFERRED NO_REST_FOR_DEFERRED  the driver neither sleeps nor gives the lock up while
 *                                                    another thread runs callbacks
 *
 * That whoever gives the lock up looks for those who found it taken (unlock() in loop.c) only saves time: a driver or the
 * background thread would come by.
 */
#ifndef BLOCKING
#define BLOCKING 0 /* callers, the first ones, that call the blocking form of something that takes time */
#endif
#define BACKGROUND CALLERS
#define NOBODY (CALLERS + 1)
#define BIT(i) (1 << (i))
#define ALL ((1 << CALLERS) - 1)
#define FIRST(set) ((set) & 1 -> 0 : ((set) & 2 -> 1 : 2))
#ifdef NO_THREAD
#define HAS_THREAD false
#else
#define HAS_THREAD true
#endif

mtype = { NETWORK, AT_ONCE, DEFERRED, STARTED };
mtype kind[CALLERS];

byte lock;       /* its holder + 1 */
byte posted;     /* sets of callers, here and below */
byte in_flight;  /* operations */
byte registered; /* of these, the kernel would wake a sleeper for them */
byte arrived;    /* whose packet is there */
byte deferred;
bool deferring;
byte done;

bool slot_lock;
byte driver = NOBODY;
byte sleeping;   /* waiters in the list */
byte promoted;
byte signalled;  /* waiters whose condition variable was signalled since they began to wait on it */
byte n_sleeping;
byte asleep;     /* drivers in poll() */
bool wake_fd, background_fd, background_signalled;

byte driving;    /* callers in drive() */
byte returned;   /* callers that have nothing more to do */

#define WORK_LEFT (in_flight || deferred)
#define PACKET_WAKES ((in_flight & registered & arrived) != 0)

/*
 * A section under slot_lock that touches only one thing from outside it is one step, as is a section under the lock that
 * touches only one thing from outside: nobody can tell.
 */

inline take_lock(me) {
  atomic { lock == 0 -> lock = me + 1 }
}

/* With slot_lock held. */
inline wake_driver() {
  if
  :: driver != NOBODY && (asleep & BIT(driver)) ->
    if
    :: driver == BACKGROUND -> background_fd = true
    :: else -> wake_fd = true
    fi
  :: else
  fi
}

inline give_to_background() {
  driver = BACKGROUND;
  background_signalled = true;
#ifndef NO_RECALL
  wake_driver()
#endif
}

/* The second half of gy_loop_complete. */
inline wake_waiter(c) {
  atomic {
    if
    :: n_sleeping == 0
    :: n_sleeping > 0 && !slot_lock ->
      signalled = signalled | (sleeping & BIT(c));
#ifndef NO_WAKE_BY_COMPLETION
      if
      :: driver == c -> wake_driver()
      :: else
      fi
#endif
    fi;
    i = 0
  }
}

/* ------------------------------------------------------------------------------------------ a pass --- */

/* Runs what was posted and, if `whole`, looks what the network brought. */
inline pass(me, whole) {
  atomic {
    assert(lock == me + 1);
    ending = (whole -> arrived : 0);
    events = whole && (in_flight & arrived);
    more = posted || events;
    do
    :: posted == 0 -> break
    :: else ->
      i = FIRST(posted);
      posted = posted & ~BIT(i);
      if
      :: kind[i] == NETWORK -> in_flight = in_flight | BIT(i)
      :: kind[i] == DEFERRED -> deferred = deferred | BIT(i)
      :: kind[i] == AT_ONCE -> in_flight = in_flight | BIT(i); ending = ending | BIT(i)
      fi;
      kind[i] = STARTED
    od;
    ending = ending & in_flight;
    i = 0
  }
  do
  :: ending == 0 -> break
  :: atomic {
      ending != 0 ->
      i = FIRST(ending);
      ending = ending & ~BIT(i);
      in_flight = in_flight & ~BIT(i);
      registered = registered & ~BIT(i);
      arrived = arrived & ~BIT(i);
      done = done | BIT(i)
    }
    wake_waiter(i)
  od
}

#ifdef NO_REST_FOR_DEFERRED
#define DEFERRED_LEFT (deferred != 0)
#else
#define DEFERRED_LEFT (deferred != 0 && !deferring)
#endif

/* Part of a larger step. */
inline arm() {
  registered = registered | in_flight;
  quiet = !(in_flight & arrived) && !DEFERRED_LEFT
}

/* Locals that matter no more, so that states which differ in nothing else are one. */
inline forget() {
  events = false;
  more = false;
  quiet = false
}

/* With the lock held, which it gives up. */
inline visit(me, whole) {
  pass(me, whole);
  atomic {
    if
    :: !whole
    :: whole && !slot_lock ->
      arm();
      if
      :: driver == NOBODY && HAS_THREAD && WORK_LEFT -> give_to_background()
#ifndef NO_WAKE_BY_VISIT
      :: driver != NOBODY && (events || !quiet) -> wake_driver()
#endif
      :: else
      fi
    fi;
    forget();
    lock = 0
  }
}

/* What unlock() does once it has given the lock up. */
inline serve_posters(me) {
  do
  :: posted == 0 -> break
  :: posted != 0 ->
    if
    :: atomic { lock == 0 -> lock = me + 1 }
      visit(me, true)
    :: lock != 0 -> break
    fi
  od
}

inline run_deferred(me) {
  if
  :: atomic { deferred && !deferring -> deferring = true }
    do
    :: atomic { deferred == 0 -> deferring = false; break }
    :: atomic { deferred != 0 -> called = FIRST(deferred); deferred = deferred & ~BIT(called); lock = 0 }
      serve_posters(me);
      done = done | BIT(called);
      wake_waiter(called);
      atomic { lock == 0 -> lock = me + 1; called = 0 }
    od
  :: else
  fi
}

/* sleep_until() in three parts; poll() itself stands where it is used. First: asleep, the lock given up. `look`: poll. */
inline fall_asleep(me) {
#ifdef LOOK_TOO_EARLY
  look = posted == 0;
#endif
#ifdef NO_LOOK_BEFORE_SLEEP
  look = true;
#endif
  atomic { n_sleeping++; asleep = asleep | BIT(me) }
#ifdef LOOK_TOO_LATE
  lock = 0;
#endif
#if !defined(LOOK_TOO_EARLY) && !defined(NO_LOOK_BEFORE_SLEEP)
  look = posted == 0;
#endif
#ifndef NO_LOOK_AT_DONE
  look = look && !(done & BIT(me));
#endif
  if
  :: me == BACKGROUND -> atomic { !slot_lock -> look = look && driver == BACKGROUND }
  :: else
  fi;
#ifndef LOOK_TOO_LATE
  lock = 0
#endif
}

inline wake_up(me, fd) {
  atomic {
    asleep = asleep & ~BIT(me);
    n_sleeping--;
    fd = fd && !rung;
    rung = false;
    look = false
  }
}

/* ----------------------------------------------------------------------------------------- the driver --- */

#define WAITERS (sleeping & ~done & ALL)

/* Gives the lock up too. */
inline hand_over(me, to_background) {
  atomic {
    !slot_lock ->
    assert(driver == me);
    driving--;
    if
#ifndef NO_PROMOTION
    :: WAITERS & BIT(0) -> driver = 0
    :: WAITERS & BIT(1) -> driver = 1
    :: !WAITERS && HAS_THREAD && (to_background) -> give_to_background()
    :: !WAITERS && !(HAS_THREAD && (to_background)) -> driver = NOBODY
#else
    :: HAS_THREAD && (to_background) -> give_to_background()
    :: else -> driver = NOBODY
#endif
    fi;
    if
    :: driver < CALLERS -> promoted = promoted | BIT(driver); signalled = signalled | BIT(driver)
    :: else
    fi;
    forget();
    lock = 0
  }
}

inline drive(me) {
#ifdef DRIVE_UNLOCKED
  driving++;
#else
  atomic { lock == 0 -> lock = me + 1; driving++; assert(driving == 1) }
#endif
  do
  :: done & BIT(me) -> break
  :: else ->
    pass(me, true);
    atomic { again = more; forget() }
    run_deferred(me);
    if
    :: may_leave -> go = false; break
    :: !go && again -> again = false
    :: !go && !again ->
      atomic { arm(); go = quiet; forget() }
      if
      :: go ->
        go = false;
        fall_asleep(me);
        if
        :: look ->
          if
          :: atomic { wake_fd -> rung = true }
          :: atomic { PACKET_WAKES -> rung = wake_fd }
          :: may_leave -> go = true /* late */
          fi
        :: else
        fi;
        wake_up(me, wake_fd);
        take_lock(me)
      :: else
      fi
    fi
  od;
  again = false;
  hand_over(me, WORK_LEFT);
  serve_posters(me)
}

#ifdef THREAD_ONLY
#define SLOT_IS_FREE false
#else
#define SLOT_IS_FREE (driver == NOBODY || driver == BACKGROUND)
#endif

/* With slot_lock held. */
inline take_slot(me) {
#ifndef NO_RECALL
  wake_driver();
#endif
  driver = me
}

/* `may_leave`: the wait has a time-out. */
inline wait(me) {
  if
  :: done & BIT(me)
  :: else ->
    if
    :: atomic { !slot_lock && SLOT_IS_FREE -> take_slot(me); go = true }
    :: atomic { !slot_lock && !SLOT_IS_FREE -> slot_lock = true }
#ifndef NO_WAKE_BY_WAIT
      atomic { wake_driver() }
#endif
      atomic { sleeping = sleeping | BIT(me); n_sleeping++ }
      do
      :: atomic {
          may_leave || (promoted & BIT(me)) || (done & BIT(me)) ->
          n_sleeping--;
          sleeping = sleeping & ~BIT(me);
          signalled = signalled & ~BIT(me);
          go = (promoted & BIT(me)) != 0;
          promoted = promoted & ~BIT(me);
#ifdef TOKEN_LOST
          go = go && !may_leave;
#endif
          slot_lock = false
        }
        break
      :: atomic {
          !go && !(promoted & BIT(me)) && !(done & BIT(me)) ->
          assert(driver != NOBODY);
          signalled = signalled & ~BIT(me);
          slot_lock = false
        }
        atomic { !slot_lock && (may_leave || (signalled & BIT(me))) -> slot_lock = true; go = may_leave /* late */ }
      od
    fi;
    if
    :: go -> go = false; drive(me)
    :: else
    fi
  fi
}

/* gy_loop_progress: one pass, if no other caller drives. */
inline progress(me) {
  if
  :: atomic { !slot_lock && SLOT_IS_FREE -> take_slot(me) }
    atomic { lock == 0 -> lock = me + 1; driving++; assert(driving == 1); wake_fd = false }
    pass(me, true);
    forget();
    run_deferred(me);
    atomic { arm(); wake_fd = wake_fd || !quiet; forget() }
    hand_over(me, false);
    serve_posters(me)
  :: atomic { !slot_lock && !SLOT_IS_FREE -> skip }
  fi
}

inline post(me, whole) {
  posted = posted | BIT(me);
  if
  :: atomic { lock == 0 -> lock = me + 1 }
    visit(me, whole);
    serve_posters(me)
  :: lock != 0 ->
#ifndef NO_WAKE_BY_POST
    atomic { !slot_lock -> wake_driver() }
#endif
  fi
}

#define LOCALS byte i, ending, called; bool events, more, again, quiet, go, look, rung

proctype caller(byte me) {
  LOCALS;
  bool waits, may_leave;
  if
  :: waits = true
  :: me >= BLOCKING -> waits = false
  fi;
  post(me, !waits);
  if
  :: waits
  :: !waits -> may_leave = true
#if defined(NO_THREAD) || CALLERS == 1
  :: !waits -> progress(me)
#endif
#ifndef NO_THREAD
  :: !waits -> goto leave /* what it posted is served without it */
#endif
  fi;
  waits = false;
  do
  :: wait(me);
    if
    :: may_leave -> may_leave = false
    :: else -> break
    fi
  od;
  assert(done & BIT(me));
leave:
  returned++
}

proctype background() {
  LOCALS;
park:
  if
  :: atomic { !slot_lock && driver == BACKGROUND -> skip }
  :: atomic { !slot_lock && driver != BACKGROUND -> background_signalled = false }
end_parked:
    atomic {
      !slot_lock && (background_signalled || driver == NOBODY) ->
      if
      :: driver == NOBODY -> driver = BACKGROUND
      :: else
      fi
    }
    goto park
  fi;
  take_lock(BACKGROUND);
  do
  :: true ->
    pass(BACKGROUND, true);
    forget();
    run_deferred(BACKGROUND);
    atomic { !slot_lock -> arm(); go = (driver == BACKGROUND) }
    if
    :: !go -> break
    :: atomic { go && !quiet -> go = false }
    :: atomic { go && quiet -> go = false; forget() }
      fall_asleep(BACKGROUND);
      if
      :: look ->
end_asleep:
        if
        :: atomic { background_fd -> rung = true }
        :: atomic { PACKET_WAKES -> rung = background_fd }
        fi
      :: else
      fi;
      wake_up(BACKGROUND, background_fd);
      if
      :: atomic { !slot_lock && driver != BACKGROUND -> goto park }
      :: atomic { !slot_lock && driver == BACKGROUND -> skip }
      fi;
      take_lock(BACKGROUND)
    fi
  od;
  atomic { forget(); lock = 0 }
  serve_posters(BACKGROUND);
  goto park
}

/* The packet that ends an operation comes, sooner or later. */
proctype network() {
end_quiet:
  do
  :: atomic { in_flight & ~arrived & BIT(0) -> arrived = arrived | BIT(0) }
  :: atomic { in_flight & ~arrived & BIT(1) -> arrived = arrived | BIT(1) }
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. CALLERS - 1) {
      if
#ifndef ALL_DEFERRED
      :: kind[i] = NETWORK
      :: i >= BLOCKING -> kind[i] = AT_ONCE
#endif
      :: kind[i] = DEFERRED
      fi
    }
#ifdef THREAD_ONLY
    driver = BACKGROUND;
#endif
    i = 0;
    run network();
#ifndef NO_THREAD
    run background();
#endif
    for (i : 0 .. CALLERS - 1) {
      run caller(i)
    }
  }
end_rest:
  timeout -> assert(returned == CALLERS && done == ALL)
}

ltl served { <> (returned == CALLERS && done == ALL) }
