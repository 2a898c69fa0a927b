//! A timer that is true to tens of microseconds. Tokio's own counts whole
//! milliseconds and rounds up, which is as long as a whole claim takes.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;

struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// One timer of the kernel.
pub struct Alarm(AsyncFd<Timer>);

impl Alarm {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When the kernel has none left, or outside of a runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        #[expect(
            deprecated,
            reason = "the new way is unsafe code; what it asks for holds here: `Timer` is \
                      private, owns its descriptor and always names the same one"
        )]
        let alarm = AsyncFd::new(Timer(timer))?;
        Ok(Self(alarm))
    }

    /// Waits for this time. Cancel safe: the next call sets the timer anew.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn sleep(&mut self, time: Duration) -> io::Result<()> {
        if time.is_zero() {
            // Zero would disarm the timer.
            return Ok(());
        }
        let once = Expiration::OneShot(TimeSpec::from_duration(time));
        self.0.get_ref().0.set(once, TimerSetTimeFlags::empty())?;
        loop {
            let mut ready = self.0.readable().await?;
            // The error of a timer that has not gone off yet is `WouldBlock`.
            if let Ok(rung) = ready.try_io(|timer| Ok(timer.get_ref().0.wait()?)) {
                return rung;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn it_never_rings_early_and_can_be_set_again() {
        let mut alarm = Alarm::new().unwrap();
        for micros in [0, 1, 200, 3000] {
            let before = Instant::now();
            alarm.sleep(Duration::from_micros(micros)).await.unwrap();
            assert!(before.elapsed() >= Duration::from_micros(micros));
        }
    }
}
