/*
 * loop.pml - a model of the hand-over in src/loop.c, statement by statement where threads can meet.
 *
 * Callers post a command each, then wait for it, wait with a time-out, test, or leave. A command starts an operation that a
 * packet ends (NETWORK), is done at once (AT_ONCE), or is completed by a deferred command (DEFERRED, as destroy is). Beside
 * them run the background thread and the network.
 *
 * Left out: what the time-outs of sleeps repair. No sleep ends by its time-out here (only waits that have one of their own
 * may), so whatever a sleep of a second would hide shows as a deadlock. What the code does rely on is in the model: without a
 * driver, the background thread takes the slot.
 *
 * Checked: no deadlock (each caller returns; only the background thread may stay asleep), at most one driver, every pass under
 * the lock, no waiter asleep without a driver, and `served`: every command runs and every operation completes.
 *
 * Variants of the context, each must hold:
 * variant: CALLERS=2
 * variant: CALLERS=2 NO_THREAD
 * variant: CALLERS=2 THREAD_ONLY
 *
 * Mutations of the code, each must be found out:
 * mutant: NO_LOOK_BEFORE_SLEEP    the driver goes to sleep without another look at what was posted
 * mutant: LOOK_TOO_EARLY          it looks, but before it says that it sleeps (what a missing fence would allow)
 * mutant: NO_LOOK_AFTER_UNLOCK    whoever gives the lock up does not serve those who found it taken
 * mutant: NO_LOOK_AT_DONE         the driver does not look again whether its own request was completed by a deferred command
 * mutant: NO_WAKE_BY_VISIT        a visitor does not wake the driver for what it left undone
 * mutant: NO_WAKE_BY_WAIT         a waiter does not wake the driver for what its post left undone
 * mutant: NO_WAKE_BY_COMPLETION   the driver is not woken when another thread completes its request
 * mutant: NO_PROMOTION            a leaving driver frees the slot though others wait
 * mutant: TOKEN_LOST              a waiter that is promoted when its time is over does not pass the slot on
 * mutant: NO_RECALL               a caller that takes the slot does not wake the background thread
 * mutant: NO_REST_FOR_DEFERRED    the driver does not sleep, nor give the lock up, while another thread runs callbacks
 */
#ifndef CALLERS
#define CALLERS 2
#endif
#define BACKGROUND CALLERS
#define NOBODY (CALLERS + 1)
#define ALL ((1 << CALLERS) - 1)
#define BIT(i) (1 << (i))
#ifdef NO_THREAD
#define HAS_THREAD false
#else
#define HAS_THREAD true
#endif

mtype = { NETWORK, AT_ONCE, DEFERRED };
mtype kind[CALLERS];

byte lock;       /* its holder + 1 */
byte posted;     /* sets of callers, here and below */
byte in_flight;     /* operations in flight */
byte registered; /* of these, the kernel would wake a sleeper for them */
byte arrived;    /* whose packet is there */
byte deferred;
bool deferring;
byte done;

bool slot;       /* slot_lock */
byte driver = NOBODY;
byte sleeping;   /* waiters in the list */
byte promoted;
byte signalled;  /* waiters whose condition variable was signalled since they began to wait on it */
byte n_sleeping;
byte asleep;     /* drivers in poll() */
bool wake_fd, background_fd, background_signalled;

byte driving;    /* callers in drive() */
byte returned;   /* callers that have nothing more to do */

#define IS_DRIVER_ASLEEP (driver != NOBODY && (asleep & BIT(driver)) != 0)

#define WORK_LEFT (in_flight || deferred)

/* Locals that matter no more, so that states which differ in nothing else are one. */
inline forget() {
  d_step { events = false; more = false; quiet = false }
}

/* The first of a set. */
#define FIRST(set) ((set) & 1 -> 0 : ((set) & 2 -> 1 : 2))

inline take(me) {
  atomic { lock == 0 -> lock = me + 1 }
}

/* With slot_lock held. */
inline wake_driver() {
  if
  :: IS_DRIVER_ASLEEP && driver == BACKGROUND -> background_fd = true
  :: IS_DRIVER_ASLEEP && driver != BACKGROUND -> wake_fd = true
  :: else
  fi
}

/* A section under slot_lock that touches only one thing from outside it is one step, here and below. */
inline wake_whom(i) {
  atomic {
    if
    :: n_sleeping == 0
    :: n_sleeping > 0 && !slot ->
      signalled = signalled | BIT(i);
#ifndef NO_WAKE_BY_COMPLETION
      if
      :: driver == i -> wake_driver()
      :: else
      fi
#endif
    fi
  }
}

/* ------------------------------------------------------------------------------------------ a pass --- */

/* Runs what was posted and, if `whole`, looks what the network brought. */
inline pass(me, whole) {
  atomic {
    assert(lock == me + 1);
    events = whole && (in_flight & arrived);
    ending = (whole -> arrived : 0);
    more = posted != 0 || events;
    do
    :: posted == 0 -> break
    :: else ->
      i = FIRST(posted);
      posted = posted & ~BIT(i);
      if
      :: kind[i] == NETWORK -> in_flight = in_flight | BIT(i); registered = registered & ~BIT(i)
      :: kind[i] == DEFERRED -> deferred = deferred | BIT(i)
      :: kind[i] == AT_ONCE -> in_flight = in_flight | BIT(i); ending = ending | BIT(i)
      fi
    od;
    ending = ending & in_flight
  }
  do
  :: atomic { ending == 0 -> i = 0; break }
  :: atomic {
      ending != 0 ->
      i = FIRST(ending);
      ending = ending & ~BIT(i);
      in_flight = in_flight & ~BIT(i);
      done = done | BIT(i)
    }
    wake_whom(i)
  od
}

#ifdef NO_REST_FOR_DEFERRED
#define DEFERRED_LEFT (deferred != 0)
#else
#define DEFERRED_LEFT (deferred != 0 && !deferring)
#endif

inline arm(me) {
  d_step {
    assert(lock == me + 1);
    registered = registered | in_flight;
    quiet = !(in_flight & arrived) && !DEFERRED_LEFT
  }
}

inline visit(me, whole) {
  pass(me, whole);
  if
  :: whole ->
    arm(me);
    atomic {
      !slot ->
      if
      :: driver == NOBODY && HAS_THREAD && WORK_LEFT -> driver = BACKGROUND; background_signalled = true
#ifndef NO_WAKE_BY_VISIT
      :: driver != NOBODY && (events || !quiet) -> wake_driver()
#endif
      :: else
      fi;
      forget()
    }
  :: else -> forget()
  fi
}

inline unlock(me) {
  lock = 0;
#ifndef NO_LOOK_AFTER_UNLOCK
  do
  :: posted == 0 -> break
  :: posted != 0 ->
    if
    :: atomic { lock == 0 -> lock = me + 1 }
      visit(me, true);
      lock = 0
    :: lock != 0 -> break
    fi
  od
#endif
}

inline run_deferred(me) {
  if
  :: atomic { deferred && !deferring -> deferring = true }
    do
    :: atomic { deferred == 0 -> deferring = false; break }
    :: atomic { deferred != 0 -> called = FIRST(deferred); deferred = deferred & ~BIT(called) }
      unlock(me);
      done = done | BIT(called);
      wake_whom(called);
      atomic { lock == 0 -> lock = me + 1; called = 0 }
    od
  :: else
  fi
}

/* sleep_until() in three parts; poll() itself stands where it is used. */
inline fall_asleep(me) {
#ifdef LOOK_TOO_EARLY
  look = posted == 0;
#endif
  atomic { n_sleeping++; asleep = asleep | BIT(me) }
  lock = 0;
#ifdef NO_LOOK_BEFORE_SLEEP
  look = true;
#endif
#if !defined(LOOK_TOO_EARLY) && !defined(NO_LOOK_BEFORE_SLEEP)
  look = posted == 0;
#endif
#ifndef NO_LOOK_AT_DONE
  look = look && !(done & BIT(me));
#endif
}

#define PACKET_WAKES ((in_flight & registered & arrived) != 0)

inline wake_up(me, fd) {
  atomic {
    asleep = asleep & ~BIT(me);
    n_sleeping--;
    fd = fd && !rung;
    rung = false;
    look = false
  }
  take(me)
}

/* ----------------------------------------------------------------------------------------- the driver --- */

#define WAITERS (sleeping & ~done & ALL)

inline hand_over(me) {
  atomic {
    !slot ->
    assert(driver == me);
    driving--;
    if
#ifndef NO_PROMOTION
    :: WAITERS & BIT(0) -> driver = 0
    :: WAITERS & BIT(1) -> driver = 1
    :: WAITERS & BIT(2) -> driver = 2
    :: !WAITERS && HAS_THREAD && WORK_LEFT -> driver = BACKGROUND; background_signalled = true
    :: !WAITERS && !(HAS_THREAD && WORK_LEFT) -> driver = NOBODY
#else
    :: HAS_THREAD && WORK_LEFT -> driver = BACKGROUND; background_signalled = true
    :: else -> driver = NOBODY
#endif
    fi;
    if
    :: driver < CALLERS -> promoted = promoted | BIT(driver); signalled = signalled | BIT(driver)
    :: else
    fi
  }
}

/* `may_leave`: the wait has a time-out. */
inline drive(me) {
  atomic { lock == 0 -> lock = me + 1; driving++; assert(driving == 1) }
  do
  :: done & BIT(me) -> break
  :: else ->
    pass(me, true);
    atomic { again = more; forget() }
    run_deferred(me);
    if
    :: may_leave -> break
    :: again
    :: !again ->
      arm(me);
      if
      :: atomic { quiet && !(done & BIT(me)) -> forget() }
        fall_asleep(me);
        if
        :: look ->
          if
          :: wake_fd -> rung = true
          :: PACKET_WAKES -> rung = wake_fd
          :: may_leave
          fi
        :: else
        fi;
        wake_up(me, wake_fd)
      :: else -> forget()
      fi
    fi
  od;
  again = false;
  hand_over(me);
  unlock(me)
}

inline wait(me) {
  if
  :: done & BIT(me)
  :: else ->
    if
#ifndef THREAD_ONLY
    :: atomic {
        !slot && (driver == NOBODY || driver == BACKGROUND) ->
        mine = true;
#ifndef NO_RECALL
        background_fd = background_fd || driver == BACKGROUND;
#endif
        driver = me
      }
    :: atomic { !slot && driver != NOBODY && driver != BACKGROUND -> slot = true }
#else
    :: atomic { !slot -> slot = true }
#endif
#ifndef NO_WAKE_BY_WAIT
      atomic { wake_driver() }
#endif
      atomic { sleeping = sleeping | BIT(me); n_sleeping++ }
      do
      :: atomic {
          may_leave || (promoted & BIT(me)) || (done & BIT(me)) ->
          n_sleeping--;
          sleeping = sleeping & ~BIT(me);
          mine = (promoted & BIT(me)) != 0;
          promoted = promoted & ~BIT(me);
#ifdef TOKEN_LOST
          mine = mine && !may_leave;
#endif
          slot = false
        }
        break
      :: atomic {
          !(promoted & BIT(me)) && !(done & BIT(me)) ->
          assert(driver != NOBODY);
          signalled = signalled & ~BIT(me);
          slot = false
        }
        atomic { !slot && (may_leave || (signalled & BIT(me))) -> slot = true }
      od
    fi;
    if
    :: atomic { mine -> mine = false }
      drive(me)
    :: else
    fi
  fi
}

/* gy_loop_progress: one pass, if nobody else drives. */
inline progress(me) {
  if
  :: atomic { !slot && driver == NOBODY -> driver = me }
    atomic { lock == 0 -> lock = me + 1; driving++; assert(driving == 1); wake_fd = false }
    pass(me, true);
    forget();
    run_deferred(me);
    arm(me);
    atomic { wake_fd = wake_fd || !quiet; forget() }
    hand_over(me);
    unlock(me)
  :: atomic { !slot && driver != NOBODY -> skip }
  fi
}

inline post(me, waits) {
  posted = posted | BIT(me);
  if
  :: atomic { lock == 0 -> lock = me + 1 }
    visit(me, !waits);
    unlock(me)
  :: lock != 0 ->
    atomic { !slot -> wake_driver() }
  fi
}

#define LOCALS byte i, ending, called; bool events, more, again, quiet, look, rung, mine

proctype caller(byte me) {
  LOCALS;
  bool waits, may_leave;
  if
  :: waits = true
  :: waits = false
  fi;
  post(me, waits);
  if
  :: waits
  :: !waits -> may_leave = true
#ifdef NO_THREAD
  :: !waits -> progress(me)
#else
  :: !waits -> goto leave /* what it posted is served without it */
#endif
  fi;
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
  do
  :: atomic { !slot && driver == BACKGROUND -> skip }
    take(BACKGROUND);
    do
    :: true ->
      pass(BACKGROUND, true);
      forget();
      run_deferred(BACKGROUND);
      arm(BACKGROUND);
      atomic { !slot -> mine = (driver == BACKGROUND) }
      if
      :: atomic { !mine -> forget(); break }
      :: atomic { mine && quiet -> mine = false; forget() }
        fall_asleep(BACKGROUND);
        if
        :: look ->
end_poll:
          if
          :: background_fd -> rung = true
          :: PACKET_WAKES -> rung = background_fd
          fi
        :: else
        fi;
        wake_up(BACKGROUND, background_fd)
      :: atomic { mine && !quiet -> mine = false; forget() }
      fi
    od;
    unlock(BACKGROUND)
  :: atomic { !slot && driver != BACKGROUND -> background_signalled = false }
end_parked:
    atomic {
      !slot && (background_signalled || driver == NOBODY) ->
      if
      :: driver == NOBODY -> driver = BACKGROUND
      :: else
      fi
    }
  od
}

/* The packet that ends an operation comes, sooner or later. */
proctype network() {
end_network:
  do
  :: atomic { in_flight & ~arrived & BIT(0) -> arrived = arrived | BIT(0) }
  :: atomic { in_flight & ~arrived & BIT(1) -> arrived = arrived | BIT(1) }
  :: atomic { in_flight & ~arrived & BIT(2) -> arrived = arrived | BIT(2) }
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. CALLERS - 1) {
      if
      :: kind[i] = NETWORK
      :: kind[i] = AT_ONCE
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
}

ltl served { <> (returned == CALLERS && done == ALL) }
