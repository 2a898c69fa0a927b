//! A path through the world, told so that a person can follow it.

use crate::history::Verdict;
use crate::records::{RecordId, Said};
use crate::sale::Sale;
use crate::state::{Action, State, Step};
use dropgate_domain::Rule;
use std::fmt::Write;

impl<R: Rule> Sale<R> {
    /// One line a step: what happened, what the log says after it, and what a user was told.
    pub(crate) fn story(&self, path: &[(State, Option<Action>)]) -> Vec<String> {
        let steps = path.windows(2).filter_map(|pair| match pair {
            [(before, Some(action)), (after, _)] => Some((before, *action, after)),
            _ => None,
        });
        steps
            .map(|(before, action, after)| {
                let mut line = self.what(before, action, after);
                if after.log != before.log {
                    let _ = write!(line, "; the log: {}", self.log_of(after));
                }
                let told = self.newly_told(before, after);
                if !told.is_empty() {
                    let _ = write!(line, "; told: {}", told.join(", "));
                }
                line
            })
            .collect()
    }

    fn what(&self, before: &State, action: Action, after: &State) -> String {
        match action {
            Action::Claim {
                server,
                reader,
                user,
                replied,
            } => {
                let who = self.gateway(before, reader);
                let how = self.reply(after, server, before, reader, replied);
                format!(
                    "{who} claims for user {user} on {}: {how}",
                    on(before, server)
                )
            }
            Action::Close {
                server,
                reader,
                replied,
            } => {
                let who = self.gateway(before, reader);
                let how = self.reply(after, server, before, reader, replied);
                format!("{who} closes the sale on {}: {how}", on(before, server))
            }
            Action::Relay { server, reader, .. } => format!(
                "{} reads the tip of {} and publishes again {}",
                self.gateway(before, reader),
                on(before, server),
                self.new_in_flight(before, after)
            ),
            Action::Land { place, copied } => {
                let event = self.record(before.flying[usize::from(place)]);
                let copy = if copied {
                    ", and a copy is on its way"
                } else {
                    ""
                };
                format!("{event} reaches the log{copy}")
            }
            Action::Read { reader } => {
                let read = before.readers[usize::from(reader)];
                let record = self.history.last(self.history.prefix(before.log, read + 1));
                format!(
                    "{} reads {}",
                    self.gateway(before, reader),
                    self.record(record)
                )
            }
            Action::Restart { reader } => {
                format!("{} ends; another begins", self.gateway(before, reader))
            }
            Action::Recover { slot, server } => self.recovery(before, slot, server, after),
            Action::Sync | Action::Lose { .. } | Action::Promote => fault(action, after),
            Action::LookUp { .. } | Action::Follow { .. } | Action::Write { .. } => {
                written(action, before, after)
            }
            Action::TellVoid { place } => {
                let event = self.record(before.flying[usize::from(place)]);
                format!("redis does not have {event}: its user is told that it is void")
            }
            Action::TellSoldOut { reader } => format!(
                "{} is told by redis that nothing is left, and tells a user",
                self.gateway(before, reader)
            ),
        }
    }

    fn reply(
        &self,
        after: &State,
        server: u8,
        before: &State,
        reader: u8,
        replied: bool,
    ) -> String {
        let generation = self.read_by(before, reader).generation;
        let head = after.servers[usize::from(server)]
            .data
            .keys(generation)
            .head;
        let event = self.record(head);
        if replied {
            format!("{event}, which it begins to publish")
        } else {
            format!("{event}, and the reply is lost")
        }
    }

    fn recovery(&self, before: &State, slot: u8, server: u8, after: &State) -> String {
        let (was, now) = (
            before.recoveries[usize::from(slot)],
            after.recoveries[usize::from(slot)],
        );
        let (from, to) = (now.generation, now.generation + 1);
        let on = on(before, server);
        let what = match was.step {
            Step::Begin => format!("begins, to end generation {from}"),
            Step::Bar => format!("keeps generation {from} from becoming current on {on}"),
            Step::Halt => format!("takes generation {from} out of use on {on}"),
            Step::Publish if after.log != before.log => {
                format!("publishes what it finds in the outbox of {on}")
            }
            Step::Publish => format!("finds nothing more to publish in the outbox of {on}"),
            Step::Start => format!("appends the start of generation {to}"),
            Step::Load if now.step == Step::Left => "finds that another came first".to_owned(),
            Step::Load => format!("reads the log to its start and loads its scripts on {on}"),
            Step::Claims => format!("writes claims of generation {to} to {on}"),
            Step::Count => format!("counts the claims of generation {to} on {on}"),
            Step::State => format!("writes the state of generation {to} and its marker to {on}"),
            Step::Switch => {
                let current = |state: &State| state.servers[usize::from(server)].data.current;
                if current(before) == current(after) {
                    format!("is refused the switch to generation {to} on {on}")
                } else {
                    format!("switches {on} from generation {} to {to}", current(before))
                }
            }
            Step::Left => "does nothing".to_owned(),
        };
        format!("recovery {slot} {what}")
    }

    fn gateway(&self, state: &State, reader: u8) -> String {
        format!(
            "the gateway that has read {} of the log",
            state.readers[usize::from(reader)]
        )
    }

    fn new_in_flight(&self, before: &State, after: &State) -> String {
        let new = after.flying.iter().find(|id| !before.flying.contains(id));
        new.map_or("nothing new".to_owned(), |id| self.record(*id))
    }

    fn record(&self, id: RecordId) -> String {
        if id == RecordId::NONE {
            return "nothing".to_owned();
        }
        match self.records.said(id) {
            Said::Started {
                generation,
                author: 0,
            } => format!("[start of {generation}]"),
            Said::Started { generation, author } => {
                format!("[start of {generation} by recovery {}]", author - 1)
            }
            Said::Won {
                generation,
                seq,
                unit,
                user,
                call,
                ..
            } => format!("[{generation}/{seq} unit {unit} to user {user}, call {call}]"),
            Said::Closed {
                generation, seq, ..
            } => format!("[{generation}/{seq} closed]"),
        }
    }

    fn log_of(&self, state: &State) -> String {
        let mut records: Vec<String> = self
            .history
            .prefixes(state.log)
            .map(|log| self.record(self.history.last(log)))
            .collect();
        records.reverse();
        let folded = self.folded(state.log);
        let ended = if folded.ended { ", ended" } else { "" };
        format!(
            "{} (applied {}/{}{ended})",
            records.join(" "),
            folded.generation,
            folded.applied
        )
    }

    /// What users are told in this step: by a gateway that has read further, or on other grounds.
    fn newly_told(&self, before: &State, after: &State) -> Vec<String> {
        let mut told = Vec::new();
        let new = after
            .told
            .won
            .iter()
            .filter(|id| !before.told.won.contains(id));
        told.extend(new.map(|id| format!("won {}", self.record(*id))));
        if after.told_to > before.told_to {
            let was = self.folded(self.history.prefix(before.log, before.told_to));
            let is = self.folded(self.history.prefix(after.log, after.told_to));
            for generation in 1..=is.generation {
                let given = after.given[usize::from(generation - 1)];
                for seq in 1..=given {
                    if was.verdict(generation, seq) == is.verdict(generation, seq) {
                        continue;
                    }
                    match is.verdict(generation, seq) {
                        Verdict::Applied(id) if id != RecordId::NONE => {
                            told.push(format!("won {}", self.record(id)));
                        }
                        Verdict::Void => told.push(format!("void {generation}/{seq}")),
                        Verdict::Applied(_) | Verdict::Open => {}
                    }
                }
            }
        }
        told
    }
}

fn on(state: &State, server: u8) -> &'static str {
    if server == state.master {
        "the master"
    } else {
        "the former master"
    }
}

fn fault(action: Action, after: &State) -> String {
    match action {
        Action::Lose { emptied, scripts } => {
            let data = if emptied {
                "no data"
            } else {
                "the data of its disk"
            };
            let cache = if scripts { "with" } else { "without" };
            format!("redis comes back with {data}, {cache} its scripts")
        }
        Action::Promote => format!(
            "server {} is made the master; server {} does not know",
            after.master,
            1 - after.master
        ),
        _ => "all that the master has is written to its disk or replica".to_owned(),
    }
}

fn written(action: Action, before: &State, after: &State) -> String {
    let ((g, s), (to_g, to_s)) = (before.database.at, after.database.at);
    match action {
        Action::Follow { writer } => {
            let read = after.database.writers[usize::from(writer)].read;
            format!("writer {writer} reads the log to its record {read}")
        }
        Action::Write { writer } if before.database.at == after.database.at => {
            format!("writer {writer} finds that the database is not where it left it")
        }
        Action::Write { writer } => {
            format!("writer {writer} writes: the database goes from {g}/{s} to {to_g}/{to_s}")
        }
        Action::LookUp { writer } => format!("writer {writer} finds the database at {g}/{s}"),
        _ => "nothing".to_owned(),
    }
}
